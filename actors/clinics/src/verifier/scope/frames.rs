//! Word classes of [`super::general`]: what advice speaks of, and the frames that only advice has.

use super::classes::*;

/// English verbs of living and of watching one's health, in the notation of the lexicon.
pub(super) const ENGLISH_LIVING: &str = "eat/ate/eaten drink/drank/drunk rest sleep/slept walk exercise lose/lost \
    measure check watch book schedule arrange relax breathe wait elevate wear/wore/worn wash massage hydrate fast \
    drive/drove/driven fly/flew/flown lift bend/bent stretch meditate swim+/swam/swum practise practice vaccinate \
    immunise immunize test rinse gargle track order obtain request favour opt try supplement cool warm soak gain \
    insist ask stay/stayed treat manage allow let/let leave/left ignore skip+ delay postpone consider favor \
    prefer trial dose screen rule raise steer go/went/gone see/saw/seen look seek/sought drop+ bring/brought swap+ wean \
    have/had/had consume snack cook sit/sat stand/stood lie run+/ran sunbathe cover clean soothe soften shake/shook";

/// Portuguese verbs of living and of watching one's health, in the notation of the lexicon.
pub(super) const PORTUGUESE_LIVING: &str = "beber comer descansar dormir/durm caminhar andar correr nadar praticar \
    perder/perc medir/meç controlar vigiar verificar vacinar consumir relaxar respirar repousar hidratar emagrecer \
    exercitar massajar massagear lavar elevar aguentar esperar aguardar marcar agendar solicitar requisitar \
    investigar pesquisar excluir avaliar reavaliar monitorar monitorizar acompanhar rever preferir/prefir ponderar \
    considerar apostar tratar cuidar deixar ficar/fiqu ignorar adiar poupar dispensar pedir/peç ouvir/ouç conduzir \
    dirigir/dirij viajar voltar praticar alimentar mastigar pesar ganhar prevenir/previn proteger/protej ter/tenh \
    dar trazer/trag recusar aceitar fumar colocar experimentar recorrer procurar fugir/fuj partir insistir guardar arrefecer/arrefeç aquecer/aqueç molhar esfregar enxaguar bochechar apoiar esticar \
    deitar levantar sentar limpar secar mergulhar/mergulh apertar cobrir/cubr";

#[rustfmt::skip]
pub(super) const FRAME_WORDS: &[(Class, &str)] = &[
    (MEDICINE, "inhibitor inhibitors ace arb arbs ssri ssris agonist agonists antagonist antagonists nitrate nitrates triptan triptans \
        betablocker betablockers benzodiazepine benzodiazepines contraceptive contraceptives inibidor inibidores agonista \
        antagonista farmaco farmacos pilula pilulas droga drogas tomas betabloqueante betabloqueantes ansioliticos sedativo sedativos analgesia \
        benzodiazepina benzodiazepinas genericos anticoncepcional generic contracetivo injetavel polypharmacy \
        colirio xaropes calmante calmantes"),
    (DOSE_VERB | POLITE, "ponha ponham poe"),
    (SEEK | POLITE, "va"),
    (HEDGE, "cheira smells crer duvida doubt"),
    (PATIENT, "senhor senhora"),
    (NUMBER, "seven eight nine ten twelve fifteen twenty thirty sete oito nove dez doze quinze vinte trinta"),
    (BODY, "outcome outcomes desfecho desfechos evolucao manchas moles stone stones pedra pedras disc discs remission recovery remissao recuperacao cura interaction interactions effects interacao interacoes efeitos kilos quilos kg infections infecoes infeccoes blood pressure cholesterol glucose sugars heart heartbeat kidney kidneys liver thyroid lung lungs brain stomach \
        bowel gut skin joint joints muscle muscles muscular bone bones back knee knees nerve nerves immune metabolism hormone \
        hormones circulation pulse rhythm airway airways throat sinus ear eyes vision hearing memory mood sleep insomnia fatigue tiredness \
        stress tension nausea vertigo heartburn indigestion constipation diarrhoea diarrhea itching cramps spasm \
        inflammation bp ldl hba1c inr tsh ferritin iron calcium magnesium zinc platelets creatinine \
        depressed anxious diabetic diabetics hypertensive anaemic anemic anaemia obese overweight pregnant pregnancy epileptic asthmatic \
        illness illnesses condition conditions disease diseases health healthy deficiency intolerance tumors tumours \
        pressao tensao sangue sanguineo colesterol triglicerideos glicose glicemia glicemias coracao rim rins figado tiroide tireoide pulmao pulmoes \
        cerebro estomago intestino pele articulacao articulacoes musculo musculos muscular osso ossos costas joelho nervo nervos \
        imunidade metabolismo hormonas hormonios circulacao pulso ritmo garganta ouvido olhos visao memoria humor sono insonia \
        cansaco fadiga stress estresse nausea nauseas enjoo vertigem vertigens tonturas azia prisao colicas espasmos inflamacao \
        ferritina ferro calcio magnesio zinco plaquetas creatinina deprimido deprimida ansioso ansiosa diabetico \
        diabeticos hipertensos anemico obeso obesa gravida gravidez epileptico asmatico saude deficiencia intolerancia \
        arritmia arritmias crises convulsoes dor dores febre tosse molestia maleita enfermidade stroke clot clots"),
    (LIFESTYLE, "caminhar correr nadar emagrecer repousar trabalho gym sport sports oats eggs bread vegetables fruit fruits garlic ginger turmeric honey lemon juice juices milk meat fish fat fats \
        carbs carbohydrates fibre fiber protein snacks meal meals breakfast dinner dieting keto mediterranean vegan \
        vegetarian probiotic probiotics yoga meditation mindfulness acupuncture acupressure massage breathing walking walks walk swimming \
        cycling jogging stretching compress compresses heat cold bath baths sunbathing melatonin magnesium \
        valerian chamomile camomile hawthorn ginseng ginkgo cannabis cbd oil oils vinegar herbs herb infusion infusions \
        detox cleanse sleeping bedtime stockings hydrated travel travelling traveling flying fast juice beer spirits drinks drink nicotine \
        tobacco pao ovos legumes fruta frutas alho gengibre acafrao curcuma mel limao sumo suco leite carne peixe gordura gorduras \
        fibra fibras proteina refeicao refeicoes jantar meditacao acupunctura acupuntura massagem massagens respiracao caminhada \
        caminhadas natacao ciclismo corrida compressa compressas calor frio banho banhos melatonina magnesio valeriana \
        camomila espinheiro erva ervas oleo oleos vinagre infusao infusoes probioticos meias viajar dormir cerveja \
        bebidas conduzir dirigir descanso descansar lentilhas salt-free glutens desporto esporte ginastica cafeinas"),
    (TREATMENT, "eeg emg tac rmn monitoring checkup echo holter x-rays cbt counselling counseling screening vaccine vaccination jab jabs bloodwork \
        panel biopsies referral polysomnography spirometry cpap physio analises hemograma eletrocardiograma \
        electrocardiograma ecocardiograma eco radiografia raio-x raios espirometria polissonografia rastreio acompanhamento pacemaker \
        marca-passo marcapasso desfibrilhador desfibrilador cateter implante amputacao colchicina hospitalizacao"),
    (OBLIGE, "convinha conviria carece carecem qualifies qualifica chega chegam bastam convem compensa importa justifica impoe exige exigem calls deserves merits warrants merece mereca devias \
        cumpre"),
    (ABLE, "podia podiam podias"),
    (GENERAL, "maioria majority children adults elderly infants women men seniors idosos criancas adultos mulheres homens usually generally typically normally commonly rarely seldom often tend tends people everybody sufferers individuals \
        physicians doctors specialists experts guidelines studies research literature situation situations cases known \
        anyone someone those whoever normalmente geralmente habitualmente costuma costumam raramente frequentemente \
        tende tendem pessoas gente especialistas peritos diretrizes estudos literatura situacao situacoes casos quem muitos \
        medicos sabe"),
    (SYSTEM, "clinic clinica question questions id ids name names list lists listed query queries search word words answer answers entry entries \
         system clinics match matches matching matched found database rephrase \
        spelling asked specialty pergunta perguntas nome nomes lista listas pesquisa palavra \
        palavras resposta respostas sistema clinicas encontrado encontrados pedido \
        especialidade identificador identificadores selected filter wording writing available visible"),
    (OPINION, "aposto sugerimos recomendamos aconselhamos propomos think believe reckon feel opinion view judgement judgment personally advice suggestion recommendation \
        guess bet hunch palpite instinct inclined tempted acho achamos creio cremos penso pensamos diria diriamos opiniao parecer ver conselho \
        sugestao recomendacao entendo considero vejo recommend recommends suggest suggests advise advises propose \
        advocate prescribe sugiro sugeria sugeriria recomendo recomendava recomendaria aconselho aconselhava \
        aconselharia propunha proponho optaria optava preferia preferiria arriscava apostava apostaria ponderaria ponderava prefer"),
    (LIVING | CONDITIONAL, "faria fariam"),
    (CLAIM, "pede pedem reaches fits matches adds equals explains accounts means does makes goes works acts serves remains belongs depends lasts happens \
        heals shrinks grows fades vanishes disappears passes burns subsides leads ends saves deserves wants requires beats \
        hides rules rests hinges calls speaks masks mimics turns becomes gets feels seems explain fit match mean work grow heal \
        pass fade belong depend bate batem soma somam equivale explica explicam significa significam funciona funcionam serve dura duram \
        desaparece desaparecem some cresce faz fazem fica ficam pertence depende acaba acabam combina combinam falta faltam acontece \
        vale basta bastam cede volta voltam surge melhora piora passam curam cura resolve resolvem deve-se corresponde encaixa"),
    (DOSE_VERB | LIVING | BASE, "breathe"),
    (FIELD, "medication medications medicine medicines dose doses dosage dosages drug drugs route frequency diagnosis diagnoses condition conditions \
        treatment treatments therapy therapies allergy allergies prescription prescriptions status severity stage date dates start \
        end reason indication last latest first next appointment medicamento medicamentos medicacao remedio remedios via frequencia \
        diagnostico diagnosticos condicao condicoes tratamento tratamentos alergia alergias prescricao estado gravidade data \
        inicio fim motivo ultima ultimo proxima consulta"),
    (RISK, "temer damage dano danos concerned worried alarmed problemas fear afraid custa harm harmful harmless hurt risk risks risky danger dangerous safe safely serious worry worries worrying concern concerning \
        alarming benign innocuous sinister grave mal perigo perigoso perigosa risco riscos inofensivo \
        inofensiva seguro segura benigno benigna benignos serio preocupar preocupacao preocupante inocuo importancia problema \
        problem deal fuss fine okay okey afflict worse"),
    (EFFECT, "desce descem sobe sobem eleva elevam baixam eases replace replaces dispensa dispensam elimina eliminam eliminates eliminate spares lower lowers reduces prevent prevents protect protects strengthen strengthens calm calms soothe soothes boost boosts \
        cleanse cleanses detoxify regulate regulates benefit benefits stabilise stabilises stabilize stabilizes comes come stems arises keeps settles offers interact interacts outweigh outweighs suits caused vem provem decorre interage interagem servem brings bring cause causes causing \
        speeds normalise normalises normalize normalizes wonders resets clears cuts kills combat combats raises worsens aggravates triggers respond responds \
        thrive baixar previne previnem protege protegem fortalece fortalecem acalma acalmam estimula \
        regula regulam beneficia beneficiam estabiliza estabilizam causa causam provoca provocam normaliza combate combatem \
        combater piora pioram agrava agravam desencadeia ajudam aliviam curam melhoram controlam tratam resolvem responde \
        respondem limpa desintoxica"),
    (JUDGE, "much plenty correct usual correto correta certa certo maximo maxima bastante demais demasiado exagero recommended advisable inadvisable best better safe safer safest ok okay fine wise wiser prudent necessary essential indicated \
        contraindicated warranted appropriate inappropriate reasonable unreasonable preferable ideal acceptable harmless useful useless \
        beneficial worthwhile crucial vital imperative sensible helpful enough sufficient insufficient excessive justified \
        suitable unsuitable adequate inadequate obligatory mandatory logical urgent dangerous risky benign serious good bad \
        great excellent perfect poor favourable favorable pointless needless unnecessary overkill worth sense optional premature \
        overdue effective ineffective smart option choice alternative solution approach remedy cure answer priority \
        mistake relevant significant relevante relevantes significativo significativa hora altura indication need reason case indicacao necessidade motivo razao needed required advised unlikely likely high low strong weak elevated abnormal preferred treatable curable manageable \
        recomendado recomendada recomendavel aconselhavel desaconselhavel desaconselhado melhor melhores \
        seguro segura seguros seguras necessario necessaria preciso precisa indicado indicada indicados indicadas contraindicado contraindicada prudente conveniente importante \
        essencial ideal adequado adequada adequados preferivel razoavel imprescindivel fundamental crucial sensato util benefico poison veneno curta curto conveniencia vantagem vantajoso vantajosa proveitoso advantage bom boa mau ma \
        obrigatorio urgente suficiente insuficiente excessivo excessiva justificado justificada logico eficaz inutil desnecessario \
        desnecessaria dispensavel perigoso perigosa arriscado arriscada benigno benigna grave serio opcao saida escolha \
        eleicao alternativa solucao passo caminho erro prioridade pena sentido excelente otimo optimo otima favoravel alto alta altos baixo baixa baixos forte \
        elevado elevada elevados tratavel curavel boas bons"),
];
